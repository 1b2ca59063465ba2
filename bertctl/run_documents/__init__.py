"""The documents that runs, sweeps and indexes consist of, as pydantic models: one file for each.

A model says twice what a document holds. To a reader a field without a default has to be there, and
a default stands for what files of older versions lack. A writer promises every field except those
that are `OrAbsent`, and that is what the published JSON Schemas (`schemas/NAME.json`) say:
`python -m tests.documents.generated` makes them of these models, with the docstring under each
field as its description.
"""
