"""The programs that envtest of controller-runtime starts: ``kube-apiserver``, ``etcd`` and ``kubectl``, in front of the embedded server."""
