-- How many records there are: by index set where that answers it, otherwise by the values of their documents.
-- Gives where to go on ("" at the end), then group and number in turns.
if ask.by == cjson.null then
  local answer = {""}
  for at = 4, #ARGV do
    answer[#answer + 1] = tostring(at - 4)
    answer[#answer + 1] = call("ZLEXCOUNT", ARGV[at], low, high)
  end
  return answer
end

local groups = {}
local last = walk(function(id)
  local doc = call("GET", ask.documents .. id)
  local fields = doc and split(doc, ask.fields)
  if fields and holds(fields) then
    local group = values(ask.by, fields)
    groups[group] = (groups[group] or 0) + 1
  end
end)
local answer = {last}
for group, number in pairs(groups) do
  answer[#answer + 1] = group
  answer[#answer + 1] = number
end
return answer
