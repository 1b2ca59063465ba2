"""A trained model as a folder for ONNX Runtime or OpenVINO, and the proof that it answers alike."""
