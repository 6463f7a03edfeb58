"""HTTP/1.1 from the server's side (RFC 9112): what comes in is read as strictly, and refused in the same words, as by Go's net/http.

Own code because importing a general library takes longer than all else between process start and the first answer.
"""
