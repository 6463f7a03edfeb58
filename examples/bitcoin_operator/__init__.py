"""The bitcoin operator: networks of bitcoin daemons that know each other, as StatefulSets."""
