"""What a model looks at and rests on: computed with torch, returned as plain arrays; reporting
makes the pages.
"""
