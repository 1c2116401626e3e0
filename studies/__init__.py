"""Questions asked of runs; sits between the operator and what people see."""
