"""The one path that scores, used by training, evaluate and predict."""
