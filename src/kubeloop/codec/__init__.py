"""Objects in and out of bytes: JSON and YAML, leniently read, losslessly written; and projections, the partial decode."""

from kubeloop.codec.decoding import decode, decode_bookmark, decode_list
from kubeloop.codec.encoding import document_of, encode, require_document, to_dict
from kubeloop.codec.yaml import read_yaml, write_yaml

__all__ = ["decode", "decode_bookmark", "decode_list", "document_of", "encode", "read_yaml", "require_document", "to_dict", "write_yaml"]
