-- Changes are staged first and written when all of them are known to be possible: a script cannot take anything back.
-- A plan says what a kind needs: {documents, searched fields, indexes, unique fields, counter, arrivals}, and one for a
-- swap of a few fields has only what these concern, and then their places. After these, or false, comes the place of what
-- tells records of one id apart, if there is such a field.
local docs, holders, members, counts = {}, {}, {}, {}

local function stored(key)
  local doc = docs[key]
  if doc == nil then return call("GET", key) end
  return doc
end

local function within(tables, key)
  local found = tables[key]
  if not found then
    found = {}
    tables[key] = found
  end
  return found
end

local function taken(unique, fields, old, id)
  for i = 1, #unique do
    local field = unique[i]
    local key, value = field[1], fields[field[2]]
    if value ~= "null" and not (old and old[field[2]] == value) then
      local holder = within(holders, key)[value]
      if holder == nil then holder = call("HGET", key, value) end
      if holder and holder ~= id then return true end
    end
  end
  return false
end

local function same(index, old, new)
  if not (old and new) or old[index[3]] ~= new[index[3]] then return false end
  local equal = index[2]
  for i = 1, #equal do
    if old[equal[i]] ~= new[equal[i]] then return false end
  end
  return true
end

local function mark(index, fields, id, present)
  local by, style = fields[index[3]], index[4]
  if by == "null" then return end
  local member = style == 0 and id or order(by, style) .. id
  within(members, index[1] .. values(index[2], fields))[member] = present
end

local function count(counter, fields, by)
  local groups, group = within(counts, counter[1]), values(counter[2], fields)
  groups[group] = (groups[group] or 0) + by
end

-- Stages a step from the fields `old` to `new`, either of which may be missing; false if a unique value is taken.
local function make(plan, id, old, new, doc)
  if new and taken(plan[4], new, old, id) then return false end
  local indexes, unique = plan[3], plan[4]
  for i = 1, #indexes do
    local index = indexes[i]
    if not same(index, old, new) then
      if old then mark(index, old, id, false) end
      if new then mark(index, new, id, true) end
    end
  end
  for i = 1, #unique do
    local field = unique[i]
    local was, is = old and old[field[2]] or "null", new and new[field[2]] or "null"
    if was ~= is then
      if was ~= "null" then within(holders, field[1])[was] = false end
      if is ~= "null" then within(holders, field[1])[is] = id end
    end
  end
  local counter = plan[5]
  if #counter > 0 then
    if old then count(counter, old, -1) end
    if new then count(counter, new, 1) end
  end
  if not old and #plan[6] > 0 then count(plan[6], new, 1) end
  docs[plan[1] .. id] = doc
  return true
end

local function in_chunks(command, key, items)
  for from = 1, #items, CHUNK do call(command, key, unpack(items, from, math.min(from + CHUNK - 1, #items))) end
end

local function write_members(key, set)
  local added, removed = {}, {}
  for member, present in pairs(set) do
    if present then
      added[#added + 1] = 0
      added[#added + 1] = member
    else
      removed[#removed + 1] = member
    end
  end
  if #removed > 0 then in_chunks("ZREM", key, removed) end
  if #added > 0 then in_chunks("ZADD", key, added) end
end

local function write()
  for key, doc in pairs(docs) do
    if doc then call("SET", key, doc) else call("DEL", key) end
  end
  for key, set in pairs(members) do write_members(key, set) end
  for key, taken in pairs(holders) do
    for value, id in pairs(taken) do
      if id then call("HSET", key, value, id) else call("HDEL", key, value) end
    end
  end
  for key, groups in pairs(counts) do
    for group, by in pairs(groups) do
      if by ~= 0 and call("HINCRBY", key, group, by) == 0 then call("HDEL", key, group) end
    end
  end
end
