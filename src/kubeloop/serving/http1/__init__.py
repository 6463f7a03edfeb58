"""HTTP/1.1 server side (RFC 9112): parses as strictly as Go's net/http, and refuses in the same words.

Not a general library, because importing one takes longer than everything else between process start and the first response.
"""
