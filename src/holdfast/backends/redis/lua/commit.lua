-- Compare and swap, any number at once. Gives the positions of the changes that could not be made.
-- ARGV: channel to publish to or "", who publishes, plans, "all" (or none) or how many changes at most,
-- and for each change: number of its plan, id, version ("" to insert), document ("" to delete). Of a kind whose records
-- are told from earlier ones of their id, a comma and what tells them follow the version.
-- With a number, changes of what is no longer of that version are passed over; a unique value that is taken is still
-- a reason to make no change, and then its position follows a -1. A -2 asks for the same, whole.
local plans = cjson.decode(ARGV[3])
local most = tonumber(ARGV[4])
local lost, made = {}, 0

-- Long texts that stay are not sent: "=" and their digest stand for them, in a document that begins with "~".
-- Nil when other texts are stored.
local function complete(doc, before)
  local fields, kept = split(doc), split(before)
  for at, field in ipairs(fields) do
    if byte(field) == 61 then
      local text = kept[at] or "null"
      if redis.sha1hex(text) ~= sub(field, 2) then return nil end
      fields[at] = text
    end
  end
  return "[" .. concat(fields, "\n,") .. "]"
end

-- Whether only those fields change of which the plan knows. Others do when the caller was wrong about the old record.
local function foreseen(plan, old, new)
  local changing, at = plan[7], 1
  for place = 3, plan[2] do
    if changing[at] == place then
      at = at + 1
    elseif old[place] ~= new[place] then
      return false
    end
  end
  return true
end

-- True when it is made, -2 when the caller must send more, false when a unique value is taken, nil when the record is not as expected.
local function change(plan, id, version, doc)
  local before = stored(plan[1] .. id)
  if version == "" then
    if before then return nil end
    return make(plan, id, nil, split(doc, plan[2]), doc)
  end
  local old = before and split(before, plan[2])
  if not old or (plan[8] and old[2] .. "," .. old[plan[8]] or old[2]) ~= version then return nil end
  if doc == "" then return make(plan, id, old, nil, false) end
  if byte(doc) == 126 then doc = complete(doc, before) end
  if not doc then return -2 end
  local new = split(doc, plan[2])
  if plan[7] and not foreseen(plan, old, new) then return -2 end
  return make(plan, id, old, new, doc)
end

for at = 5, #ARGV, 4 do
  local done
  if made ~= most then done = change(plans[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) end
  if done == -2 then return {-2} end
  if done then
    made = made + 1
  elseif done == false and most then
    return {-1, (at - 5) / 4}
  else
    lost[#lost + 1] = (at - 5) / 4
  end
end

if most or #lost == 0 then
  write()
  if ARGV[1] ~= "" then call("PUBLISH", ARGV[1], ARGV[2]) end
end
return lost
