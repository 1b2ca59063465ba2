"""Formats of annotated texts: what annotation tools write, read into documents, and documents
written for them.
"""
