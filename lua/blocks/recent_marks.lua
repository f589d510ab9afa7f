-- RECENT remembers, each until its score:
--   an id + CANCELLED or PUSHED_AGAIN   it was cancelled or purged; PUSHED_AGAIN: and pushed again since then
--   CALL_MARK attempt                   this call of push was made; + PARTLY: of its items only those below count
--   CALL_MARK attempt ' ' id            such an item
--   ENDED_MARK id                       the message ended or moved near its due; the score is that time + REPEAT_MS
-- The fractions are part of the score. META's ended_until is the latest score of ENDED_MARK, rounded up.
local CALL_MARK, ENDED_MARK = '\3', '\4'
local CANCELLED, PUSHED_AGAIN, PARTLY = 0.5, 0.25, 0.5
