"""Formats of annotated texts.

What annotation tools write, read into documents, and documents written for them.
"""
