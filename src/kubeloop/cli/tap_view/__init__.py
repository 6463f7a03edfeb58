"""The live view of ``kubeloop tap``: a conversation as lines on a terminal."""
