"""What learns: rewards, credit, advantages, losses, updates; one GRPO step, and supervised learning."""
