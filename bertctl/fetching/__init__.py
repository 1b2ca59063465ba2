"""What recipes, models and data sets need from elsewhere: had before it is read, and locked."""
