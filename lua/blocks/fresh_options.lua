-- Options as the producer gave them, without what scripts add: the fixed expiry, the count of snoozes, the end of a
-- debounce.
local function free_expiry(options) return (string.gsub(options, ' ?expires_by=%d+', '')) end
local function fresh_options(options)
  options = string.gsub(free_expiry(options), ' ?snoozes=%d+', '')
  return (string.gsub(string.gsub(options, ' ?due_by=%d+', ''), '^ ', ''))
end
