"""The neutral model: hosts, paths, backends and certificates, without a word of NGINX or of the API that they come from."""
