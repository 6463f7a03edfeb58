"""The Kubernetes sample controller on kubeloop: a Foo stands for a Deployment of nginx."""
