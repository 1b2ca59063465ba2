"""A trained model as a folder for ONNX Runtime or OpenVINO, with the proof that it answers alike."""
