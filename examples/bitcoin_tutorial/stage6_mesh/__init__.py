"""Stage 6: the mesh: each ready daemon lists each other one as an added node."""
