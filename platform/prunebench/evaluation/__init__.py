"""From a work item to samples: one worker serves every executor."""
