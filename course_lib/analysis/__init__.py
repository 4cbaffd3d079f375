"""What the parts of a model do, and what things cost: measured."""
