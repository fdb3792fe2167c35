-- Documents in the order of an index. Gives where to go on ("" at the end), how many are still to be passed over,
-- and the documents.
local skip, found = ask.skip, {}

local function tested(id)
  local doc = call("GET", ask.documents .. id)
  if not doc or not holds(split(doc, ask.fields)) then return false end
  if skip > 0 then
    skip = skip - 1
    return false
  end
  found[#found + 1] = doc
  return #found == ask.want
end

local function plain(id)
  if skip > 0 then
    skip = skip - 1
    return false
  end
  found[#found + 1] = ask.documents .. id
  return #found == ask.want
end

local last
if #tests > 0 then
  last = walk(tested)
elseif #ARGV == 4 then
  -- The server passes over members of one set faster than we do.
  local ahead = skip
  skip = 0
  last = walk(plain, ahead)
else
  last = walk(plain)
end

local answer = {last, skip}
if #tests > 0 then
  for at, doc in ipairs(found) do answer[at + 2] = doc end
  return answer
end
for from = 1, #found, CHUNK do
  for _, doc in ipairs(call("MGET", unpack(found, from, math.min(from + CHUNK - 1, #found)))) do
    if doc then answer[#answer + 1] = doc end
  end
end
return answer
