-- Takes records out of the indexes of an old plan and puts them into those of a new one, a bounded number at a time.
-- Gives where to go on ("" at the end), how many there were, and the id of one whose unique value another has.
local moved, clash = 0, nil

local last = walk(function(id)
  local doc = call("GET", ask.documents .. id)
  if not doc then return false end
  local fields = split(doc, ask.fields)
  make(ask.old, id, fields, nil, doc)
  if not make(ask.new, id, nil, fields, doc) then
    clash = id
    return true
  end
  moved = moved + 1
  return moved == ask.want
end)
if clash then return {last, moved, clash} end
write()
return {last, moved}
