mod clock_changes;
mod oracle;
mod refusals;
mod text;
