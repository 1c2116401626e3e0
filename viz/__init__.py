"""What a person sees: the aicore command, reports and figures."""
