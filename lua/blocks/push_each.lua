--- use: judge_each
remember_call = call_mark_suffices and #noted > 0
if until_ms and not call_mark_suffices and #noted > 0 and (not call_mark or call_mark % 1 > 0) then
  for _, id in ipairs(noted) do
    remember(until_text, call .. ' ' .. id)
  end
  remember(string.format('%.2f', until_ms + PARTLY), call)
end
--- use: store_each
