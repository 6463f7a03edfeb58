"""HTTP/1.1 for both sides of a connection (RFC 9110, RFC 9112): dialing, parsing, bodies, writing, errors.

kubeloop has its own code because importing a general library takes longer than everything else between the start of a process and its first
answer. The client's side accepts nothing ambiguous; the server's side accepts and refuses as Go's net/http does.
"""
