"""What all verbs share: options of recipe fields, help, output, progress, streams."""
