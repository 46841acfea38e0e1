"""The student of the paper: a language policy that writes whole plans, taught at first, then trained by GRPO."""
