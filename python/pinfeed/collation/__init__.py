"""How samples become a batch: `Collate`, and the plan that it makes of fields and samples."""
