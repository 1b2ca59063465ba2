"""What a model looks at and rests on.

It is computed with torch and returned as plain arrays; reporting makes the pages.
"""
