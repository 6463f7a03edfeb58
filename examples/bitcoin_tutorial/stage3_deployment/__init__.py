"""Stage 3: a first controller: a Deployment for each network."""
