"""An example of a plug-in of bertctl."""
