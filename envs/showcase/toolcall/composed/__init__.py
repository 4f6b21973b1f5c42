"""Tasks that chain calls: several things to do in an office with one request, with ids and names to
be found out first, tools that refuse, decoys, and rules. What right calls leave is what the tools
themselves leave: nothing is modelled twice."""
