-- A report: two histograms of what the handlers of the node took since its last report, with a | between. A histogram:
-- the number of its first bucket, then the counts from there on; or nothing. Of 68 buckets, two an octave, bucket N has
-- the times of at most 2^(7 + N/2) us, and the last one all that are longer.
local texts = {string.match(ARGV[count], '^([%d ]*)|([%d ]*)$')}
local valid = #texts == 2 and #ARGV[count] <= 1600
for i, text in ipairs(valid and texts or {}) do
  local numbers = {}
  for number in string.gmatch(text, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
    valid = valid and (#numbers == 1 or numbers[#numbers] <= 1000000000)
  end
  valid = valid and #numbers ~= 1 and (numbers[1] or 0) + #numbers <= 69
  texts[i] = numbers
end
if valid then
  report, count = texts, count - 1
end
