-- Changes or deletes the records that match, a bounded number at a time. The keys are ids where no index is walked.
-- Gives where to go on ("" at the end), and how many records matched.
local plan, change = ask.plan, ask.change
local matched = 0

local function changed(doc)
  local fields = split(doc)
  for at = #fields + 1, ask.width do fields[at] = "null" end
  fields[2] = string.format("%.0f", fields[2] + 1)
  for _, field in ipairs(change) do fields[field[1]] = field[2] end
  return "[" .. concat(fields, "\n,") .. "]"
end

local function visit(id)
  local doc = call("GET", ask.documents .. id)
  local old = doc and split(doc, ask.fields)
  if not old or not holds(old) then return false end
  matched = matched + 1
  if change == cjson.null then
    make(plan, id, old, nil, false)
  else
    local new = changed(doc)
    make(plan, id, old, split(new, ask.fields), new)
  end
  return matched == ask.want
end

local last = ""
if ask.ids then
  for at = 4, #ARGV do
    if visit(ARGV[at]) then break end
  end
else
  last = walk(visit)
end
write()
return {last, matched}
