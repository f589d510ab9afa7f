-- Options as the producer gave them, without what scripts add: the fixed expiry; and the count of snoozes.
local function free_expiry(options) return (string.gsub(options, ' ?expires_by=%d+', '')) end
local function fresh_options(options) return (string.gsub(free_expiry(options), ' ?snoozes=%d+', '')) end
