"""Objects that a kube-apiserver creates when it starts: roles, flow control, APIServices."""
