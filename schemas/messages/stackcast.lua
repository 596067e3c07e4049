-- Wireshark dissector for the formats of docs/reference/frame-format.md (header stacks, MoldUDP64 with ITCH or attribute/value
-- events, summaries, requests, frames of attribute/value events) and docs/reference/state-protocol.md (replicated states).
--
--   tshark -X lua_script:schemas/messages/stackcast.lua -r FILE
--
-- The kinds of ITCH messages are read from itch.spec in the same folder. Faults are shown as expert
-- information with the same codes as in `stackcast frames dissect`.

local MAX_LABELS, MAX_MESSAGES = 64, 8191
local NARROW, WIDE, EVENT = 0x9999, 0x999A, 0x9001
local TUNNEL_PORT = 26403  -- between switches
local MOLDUDP64, SUMMARY, AUTHENTICATED, CREDIT = 20, 52, 72, 8
local BITMASK_GROUP = "03:53:43:00:00:02"
local LABEL_TYPES = {[0] = "invalid", "tree", "hop", "stop"}
-- Source routes by EtherType: size of a label in bytes, size of its switch id in bytes, and the strategy if
-- the labels do not contain it.
local STRATEGIES = {"port", "bitmask", "mc_group"}
local SOURCE_ROUTES = {
  [0x99A0] = {2, 1, 1}, [0x99A1] = {3, 1, 2}, [0x99A2] = {3, 1, 3}, [0x99A3] = {4, 1},
  [0x99A4] = {2, 1, 1}, [0x99B0] = {4, 2, 1}, [0x99B2] = {4, 2, 3}, [0x99B4] = {4, 2, 1},
}
-- Label types that consist of a single id.
local IDS = {[0x99A8] = "hop", [0x99A9] = "host", [0x99AA] = "tree", [0x99B8] = "hop"}
local WIDE_HOPS = 0x99B8
local HYBRID, HYBRID_TYPES = 0x99AB, {[0] = "root", "tree", "hop", "invalid"}
-- Replicated states consist of datagrams to 239.0.0.0/8 and of signals over TCP.
local STATES_PORT, SIGNAL_PORTS = 65432, {65430, 65431}
local STATE_HEADER, MOST_SEGMENT, SIGNAL, MOST_SIGNAL = 8, 1400, 15, 15 + 4095 * 1400
-- Name, position, size in bytes and highest value of each number in a signal.
local SIGNAL_FIELDS = {
  {"vnf", 5, 2, 0xFFFF}, {"state", 7, 4, 0x3FFFFF}, {"update", 11, 4, 0xFFFFFF},
  {"segment", 15, 2, 0xFFF}, {"count", 17, 2, 0xFFF},
}
local MESSAGES_OF_STATES = {[0] = "publish", "SUB-ack", "SUB-remove", "SUB-register"}
local SIGNALS = {
  [0] = "INIT_VNF", "INIT_PUB", "PUBLISH", "SUB_REG", "SUB_REM", "STATE_ID_REQ", "RECOVER",
  "ACKNOWLEDGED", "TRUNCATED", "LEASE", "SUMMARY", "LIVE",
}
local PORT_BITMAPS, MOST_PORT_BITMAPS, BLOCK = 0x99AC, 512, 11

local stack = Proto("stackcast", "Stackcast Header Stack")
local moldudp64 = Proto("stackcast_moldudp64", "MoldUDP64 of Stackcast")
local event = Proto("stackcast_event", "Stackcast Attribute/Value Event")
local tunnel = Proto("stackcast_tunnel", "Stackcast Tunnel")
local states = Proto("stackcast_states", "Stackcast Replicated State")
local signal = Proto("stackcast_signal", "Stackcast Signal of Replicated States")

local fault = ProtoExpert.new(
  "stackcast.fault", "Fault", expert.group.MALFORMED, expert.severity.ERROR)
local of_stack = {
  labels = ProtoField.uint16("stackcast.labels", "Number of labels"),
  label = ProtoField.string("stackcast.label", "Label"),
  label_type = ProtoField.uint8("stackcast.label.type", "Type", base.DEC, LABEL_TYPES),
  label_id = ProtoField.uint32("stackcast.label.id", "Id"),
  label_value = ProtoField.uint32("stackcast.label.value", "Value", base.HEX),
}
local of_packet = {
  session = ProtoField.string("stackcast.session", "Session"),
  sequence = ProtoField.uint64("stackcast.sequence", "Sequence number"),
  offset = ProtoField.uint64("stackcast.offset", "Kafka offset"),
  index = ProtoField.uint16("stackcast.index", "Index in the packet"),
  count = ProtoField.uint16("stackcast.count", "Message count"),
  message = ProtoField.bytes("stackcast.message", "Message"),
  type = ProtoField.string("stackcast.message.type", "Message type"),
  from = ProtoField.uint64("stackcast.summary.from", "From"),
  notifications = ProtoField.uint64("stackcast.summary.notifications", "Notifications"),
  last = ProtoField.uint64("stackcast.summary.last", "Last"),
  digest = ProtoField.uint64("stackcast.summary.digest", "Digest", base.HEX),
  key = ProtoField.uint32("stackcast.summary.key", "Key"),
  tag = ProtoField.bytes("stackcast.summary.tag", "Tag"),
  host = ProtoField.string("stackcast.request.host", "Host"),
}
local of_event = {
  encoding = ProtoField.string("stackcast.event.encoding", "Encoding"),
  bitmask = ProtoField.uint64("stackcast.event.bitmask", "Bitmask", base.HEX),
  id = ProtoField.uint16("stackcast.event.id", "Id"),
  value = ProtoField.uint32("stackcast.event.value", "Value"),
  payload = ProtoField.bytes("stackcast.event.payload", "Payload"),
}
local of_states = {
  kind = ProtoField.string("stackcast.states.kind", "Kind"),
  state = ProtoField.uint32("stackcast.states.state", "State"),
  vnf = ProtoField.uint16("stackcast.states.vnf", "VNF"),
  update = ProtoField.uint32("stackcast.states.update", "Update"),
  total = ProtoField.uint16("stackcast.states.total", "Segments"),
  segment = ProtoField.uint16("stackcast.states.segment", "Segment"),
  data = ProtoField.bytes("stackcast.states.data", "Data"),
}
local of_signal = {
  kind = ProtoField.string("stackcast.signal.kind", "Kind"),
  vnf = ProtoField.uint16("stackcast.signal.vnf", "VNF"),
  state = ProtoField.uint32("stackcast.signal.state", "State"),
  update = ProtoField.uint32("stackcast.signal.update", "Update"),
  segment = ProtoField.uint16("stackcast.signal.segment", "Segment"),
  count = ProtoField.uint16("stackcast.signal.count", "Count"),
  data = ProtoField.bytes("stackcast.signal.data", "Data"),
}
local credit = ProtoField.uint64("stackcast.tunnel.frames", "Frames that the other end has processed")

local function report_fault(tree, range, code, text)
  tree:add_tvb_expert_info(fault, range, code .. ": " .. text)
end

-- Kinds of messages by their first byte, as itch.spec defines them.

local function read_specification(path)
  local file = assert(io.open(path), path .. " not found: it must be in the folder of the dissector")
  local text = file:read("*a"):gsub("//[^\n]*", "")
  file:close()
  local headers, kinds, shared, fields = {}, {}, {}, {}
  for name, body in text:gmatch("header_type%s+([%w_]+)%s*{%s*fields%s*(%b{})") do
    local header = {length = 0}
    for annotations, field, bits in body:gmatch("([^;{}]-)([%w_]+)%s*:%s*(%d+)%s*;") do
      local abbrev = "itch." .. field
      local decimals = tonumber(annotations:match("@decimals%((%d+)%)"))
      local make = annotations:find("@string") and ProtoField.string
        or decimals and ProtoField.double or ProtoField.uint64
      -- Fields with the same name are shared by all kinds of messages, so that itch.stock == "GOOGL" matches all kinds.
      if not shared[abbrev] then
        shared[abbrev] = make(abbrev, field)
        fields[#fields + 1] = shared[abbrev]
      end
      header[#header + 1] = {
        name = field, proto = shared[abbrev], size = bits / 8, decimals = decimals,
        text = make == ProtoField.string,
      }
      header.length = header.length + bits / 8
    end
    headers[name] = header
  end
  for type, header, name in
    text:gmatch('@message_type%("(.)"%)%s*header%s+([%w_]+)%s+([%w_]+)%s*;') do
    headers[header].name = name
    kinds[type] = headers[header]
  end
  return kinds, fields
end

local folder = debug.getinfo(1, "S").source:match("^@?(.*[/\\])") or ""
local kinds, itch_fields = read_specification(folder .. "itch.spec")

stack.fields, stack.experts = of_stack, {fault}
event.fields, tunnel.fields = of_event, {credit}
states.fields, signal.fields = of_states, of_signal
for _, field in pairs(of_packet) do itch_fields[#itch_fields + 1] = field end
moldudp64.fields = itch_fields

local ENCODINGS = {{1, "ITCH", 1}, {2, "id pairs", 2}, {3, "bitmask", 3}}
local WIDTHS = {{1, "8", 8}, {2, "16", 16}, {3, "32", 32}, {4, "64", 64}}
moldudp64.prefs.ports = Pref.range(
  "UDP ports", "26400-26401", "spark.stackcast.multicast.port and .summary.port", 65535)
moldudp64.prefs.rerequest = Pref.uint(
  "Port of re-requests", 26402, "port in spark.stackcast.rerequest.listen")
moldudp64.prefs.messages = Pref.enum(
  "Messages", 1, "ITCH, or attribute/value events and their encoding", ENCODINGS, false)
event.prefs.id = Pref.enum(
  "Bits of an id", 8, "spark.stackcast.attributes.idBits", {WIDTHS[1], WIDTHS[2]}, false)
event.prefs.bitmask = Pref.enum(
  "Bits of a bitmask", 32, "spark.stackcast.attributes.bitmaskBits", WIDTHS, false)

-- An attribute/value header and its payload, which fill the rest of the frame or message.

local function read_id_pairs(range, tree)
  local size = event.prefs.id / 8
  if range:len() < size then
    return report_fault(tree, range, "TRUNCATED_EVENT", "the first id is truncated")
  end
  local seen, at = {}, 0
  local id = range(0, size):uint()
  repeat
    local here = range(at, size)
    if id >= event.prefs.bitmask then
      return report_fault(tree, here, "UNKNOWN_ATTRIBUTE", "id " .. id .. " is beyond the bitmask")
    elseif seen[id] then
      return report_fault(tree, here, "ID_TWICE", "id " .. id .. " occurs twice")
    elseif at + size + 4 + size > range:len() then
      return report_fault(tree, here, "TRUNCATED_EVENT", "the value or the next id is truncated")
    end
    seen[id] = true
    tree:add(of_event.id, here)
    tree:add(of_event.value, range(at + size, 4))
    at = at + size + 4
    id = range(at, size):uint()
  until id == 0
  return at + size
end

local function read_bitmask(range, tree)
  local bits = event.prefs.bitmask
  local at = bits / 8
  if range:len() < at then
    return report_fault(tree, range, "TRUNCATED_EVENT", "the bitmask is truncated")
  end
  tree:add(of_event.bitmask, range(0, at))
  local empty = true
  for id = 0, bits - 1 do
    if range:bitfield(bits - 1 - id, 1) == 1 then
      empty = false
      if at + 4 > range:len() then
        return report_fault(tree, range(0, bits / 8), "TRUNCATED_EVENT", "value " .. id .. " is missing")
      end
      tree:add(of_event.id, range(0, bits / 8), id)
      tree:add(of_event.value, range(at, 4))
      at = at + 4
    end
  end
  if empty then return report_fault(tree, range(0, at), "EMPTY_EVENT", "no bit of the bitmask is set") end
  return at
end

local function read_event(range, tree, encoding)
  tree:add(of_event.encoding, range, encoding):set_generated()
  local at = (encoding == "bitmask" and read_bitmask or read_id_pairs)(range, tree)
  if at and at < range:len() then tree:add(of_event.payload, range(at)) end
end

function event.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "Stackcast"
  local encoding = tostring(pinfo.dl_dst) == BITMASK_GROUP and "bitmask" or "id_pairs"
  pinfo.cols.info = "attribute/value event, " .. encoding
  local tree = root:add(event, buffer())
  if buffer:len() == 0 then return report_fault(tree, buffer(), "EMPTY_EVENT", "no bytes") end
  read_event(buffer(), tree, encoding)
end

-- Messages of MoldUDP64.

local function padded(number, places)
  return ("0"):rep(places - #number) .. number
end

local function add_field(tree, field, range)
  if field.text then
    tree:add(field.proto, range, (range:string(ENC_ISO_8859_1):gsub(" *$", "")))
  elseif field.decimals then
    local raw, unit = range:uint64(), UInt64(10 ^ field.decimals)
    local part = padded(tostring(raw % unit), field.decimals)
    local shown = tostring(raw / unit) .. "." .. part
    tree:add(field.proto, range, tonumber(shown), field.name .. ": " .. shown)
  else
    tree:add(field.proto, range)
  end
end

local function read_itch(range, tree)
  local type = range:len() > 0 and range(0, 1):string(ENC_ISO_8859_1) or ""
  local kind = kinds[type]
  if not kind then
    return report_fault(tree, range, "UNKNOWN_MESSAGE_TYPE", "'" .. type .. "' is not an ITCH message type")
  end
  tree:append_text(": " .. kind.name)
  tree:add(of_packet.type, range(0, 1), type)
  if range:len() ~= kind.length then
    return report_fault(tree, range, "WRONG_MESSAGE_LENGTH",
      kind.name .. " has " .. kind.length .. " bytes, not " .. range:len())
  end
  local at = 1
  for number = 2, #kind do
    add_field(tree, kind[number], range(at, kind[number].size))
    at = at + kind[number].size
  end
end

local function read_messages(buffer, tree, count)
  local at = MOLDUDP64
  for number = 1, count do
    local length = at + 2 <= buffer:len() and buffer(at, 2):uint()
    if not length or at + 2 + length > buffer:len() then
      return report_fault(tree, buffer(at), "TRUNCATED_MESSAGE", "message " .. number - 1 .. " is truncated")
    end
    local range = buffer(at + 2, length)
    local message = tree:add(of_packet.message, buffer(at, 2 + length))
    message:set_text("Message")
    if moldudp64.prefs.messages == 1 then
      read_itch(range, message)
    else
      read_event(range, message, moldudp64.prefs.messages == 3 and "bitmask" or "id_pairs")
    end
    at = at + 2 + length
  end
  if at < buffer:len() then
    report_fault(tree, buffer(at), "TRAILING_BYTES", buffer:len() - at .. " bytes after the last message")
  end
end

local function read_summary(buffer, tree)
  tree:add(of_packet.from, buffer(20, 8))
  if buffer(10, 8):uint64() < buffer(20, 8):uint64() then
    return report_fault(tree, buffer(20, 8), "BAD_SUMMARY", "the end of the range is before its start")
  end
  local notifications = tree:add(of_packet.notifications, buffer(28, 8))
  if tostring(buffer(28, 8):bytes()) == ("F"):rep(16) then notifications:append_text(" (gone)") end
  tree:add(of_packet.last, buffer(36, 8))
  tree:add(of_packet.digest, buffer(44, 8))
  if buffer:len() == AUTHENTICATED then
    tree:add(of_packet.key, buffer(SUMMARY, 4))
    tree:add(of_packet.tag, buffer(SUMMARY + 4))
  end
end

function moldudp64.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "Stackcast"
  local tree = root:add(moldudp64, buffer())
  if buffer:len() < MOLDUDP64 then
    return report_fault(tree, buffer(), "TRUNCATED_HEADER", buffer:len() .. " bytes")
  end
  local session, sequence, count = buffer(0, 10):string(), buffer(10, 8), buffer(18, 2):uint()
  tree:add(of_packet.session, buffer(0, 10))
  local place = tree:add(of_packet.sequence, sequence)
  local offset, index = sequence:bitfield(0, 38), sequence:bitfield(38, 13)
  place:add(of_packet.offset, sequence, UInt64(tostring(offset)))
  place:add(of_packet.index, sequence, index)
  tree:add(of_packet.count, buffer(18, 2))
  local what = count == 1 and "1 message" or count .. " messages"
  if pinfo.dst_port == moldudp64.prefs.rerequest then
    what = "request for " .. what
    if buffer:len() > MOLDUDP64 then
      tree:add(of_packet.host, buffer(MOLDUDP64), buffer(MOLDUDP64):string(ENC_UTF_8))
    end
  elseif count == 0 and (buffer:len() == SUMMARY or buffer:len() == AUTHENTICATED) then
    what = "summary"
    read_summary(buffer, tree)
  else
    if count == 0xFFFF then count, what = 0, "end of session" end
    if count > MAX_MESSAGES then
      report_fault(tree, buffer(18, 2), "TOO_MANY_MESSAGES", MAX_MESSAGES .. " at most")
    else
      read_messages(buffer, tree, count)
    end
  end
  pinfo.cols.info = session .. " offset " .. tostring(offset) .. ", " .. what
end

-- The header stack, and the IPv4 datagram that follows it.

local function add_label(tree, range, types)
  local type, id = range:bitfield(0, 2), range:bitfield(2, range:len() * 8 - 2)
  local label = tree:add(of_stack.label, range, types[type] .. " " .. id)
  label:add(of_stack.label_type, range, type):set_text("Type: " .. types[type])
  label:add(of_stack.label_id, range, id)
  if types[type] == "invalid" or id == 0 then report_fault(label, range, "BAD_LABEL", "switches reject this label") end
end

local function add_id(tree, range, word)
  local id = range:uint()
  local label = tree:add(of_stack.label, range, word .. " " .. id)
  label:add(of_stack.label_id, range, id)
  if id == 0 then report_fault(label, range, "BAD_LABEL", "switches reject this label") end
end

-- A host, a switch, or a block of ports of the preceding switch.
local function add_named(tree, range)
  local value, kind = range:uint(), range:bitfield(0, 2)
  local word, id = "host", value
  if kind == 2 then word, id = "switch", range:bitfield(2, 14) end
  if kind == 3 then
    local ports = {}
    for at = 0, BLOCK - 1 do
      if range:bitfield(15 - at, 1) == 1 then
        ports[#ports + 1] = tostring(BLOCK * range:bitfield(2, 3) + at + 1)
      end
    end
    word, id = "ports", table.concat(ports, ",")
  end
  local label = tree:add(of_stack.label, range, word .. " " .. id)
  if kind == 3 then
    label:add(of_stack.label_value, range, range:bitfield(5, 11))
  else
    label:add(of_stack.label_id, range, id)
  end
  if id == 0 or id == "" then report_fault(label, range, "BAD_LABEL", "switches reject this label") end
end

-- A label that tells a switch where to send copies.
local function add_order(tree, range, route)
  local device, strategy = range(0, route[2]), route[3]
  local tag = strategy or range(route[2], 1):uint()
  local value = range(strategy and route[2] or route[2] + 1)
  local text = (tag == 1 and "%d" or "0x%x"):format(value:uint())
  local label = tree:add(of_stack.label, range,
    "switch " .. device:uint() .. " " .. (STRATEGIES[tag] or "invalid") .. " " .. text)
  label:add(of_stack.label_id, device)
  label:add(of_stack.label_value, value)
  if device:uint() == 0 or value:uint() == 0 or not STRATEGIES[tag] then
    report_fault(label, range, "BAD_LABEL", "switches reject this label")
  end
end

function stack.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "Stackcast"
  local kind = pinfo.match_uint
  local route = SOURCE_ROUTES[kind]
  local size = route and route[1] or (kind == WIDE or kind == WIDE_HOPS) and 4 or 2
  local add, of = add_label, kind == HYBRID and HYBRID_TYPES or LABEL_TYPES
  if route then add, of = add_order, route end
  if IDS[kind] then add, of = add_id, IDS[kind] end
  if kind == PORT_BITMAPS then add = add_named end
  local most = kind == PORT_BITMAPS and MOST_PORT_BITMAPS or MAX_LABELS
  local tree = root:add(stack, buffer())
  if buffer:len() < 2 then
    return report_fault(tree, buffer(), "TRUNCATED_FRAME", "the number of labels is truncated")
  end
  local count = buffer(0, 2):uint()
  local length = 2 + size * count
  tree:add(of_stack.labels, buffer(0, 2))
  if count == 0 then
    return report_fault(tree, buffer(0, 2), "EMPTY_STACK", "switches drop a frame without labels")
  elseif count > most then
    return report_fault(tree, buffer(0, 2), "TOO_MANY_LABELS", most .. " at most")
  elseif length > buffer:len() then
    return report_fault(tree, buffer(), "TRUNCATED_FRAME", "the frame is too short for " .. count .. " labels")
  end
  tree:set_len(length)
  for number = 0, count - 1 do
    add(tree, buffer(2 + size * number, size), of)
  end
  if length < buffer:len() then
    -- If the datagram is truncated, the IP dissector reports this itself, and then raises an error.
    pcall(Dissector.call, Dissector.get("ip"), buffer(length):tvb(), pinfo, root)
  end
end

-- A datagram of the tunnel: a complete frame, or the number of frames that the other end has processed.

function tunnel.dissector(buffer, pinfo, root)
  if buffer:len() == CREDIT then
    pinfo.cols.protocol = "Stackcast"
    root:add(tunnel, buffer()):add(credit, buffer())
  else
    Dissector.get("eth_withoutfcs"):call(buffer, pinfo, root)
  end
end

-- A datagram of replicated states. Its destination address contains the kind of message and the state.

function states.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "Stackcast"
  local tree = root:add(states, buffer())
  local first, second, third, fourth = tostring(pinfo.net_dst):match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  local state = first and second % 64 * 65536 + third * 256 + fourth
  if first ~= "239" or state == 0 then
    return report_fault(tree, buffer(), "BAD_MESSAGE", tostring(pinfo.net_dst) .. " is not the address of a state")
  end
  local kind = MESSAGES_OF_STATES[math.floor(second / 64)]
  tree:add(of_states.kind, buffer(), kind):set_generated()
  tree:add(of_states.state, buffer(), state):set_generated()
  if buffer:len() < STATE_HEADER then
    return report_fault(tree, buffer(), "BAD_MESSAGE", buffer:len() .. " bytes are less than the 8 bytes of a header")
  end
  local total, segment = buffer(5, 3):bitfield(0, 12), buffer(5, 3):bitfield(12, 12)
  tree:add(of_states.vnf, buffer(0, 2))
  tree:add(of_states.update, buffer(2, 3))
  tree:add(of_states.total, buffer(5, 2), total)
  tree:add(of_states.segment, buffer(6, 2), segment)
  if buffer:len() > STATE_HEADER then tree:add(of_states.data, buffer(STATE_HEADER)) end
  if segment > total or total > 0 and segment == 0 then
    report_fault(tree, buffer(5, 3), "BAD_MESSAGE", "segment " .. segment .. " of " .. total)
  elseif buffer:len() > STATE_HEADER + MOST_SEGMENT then
    report_fault(tree, buffer(STATE_HEADER), "BAD_MESSAGE", "a segment has at most 1400 bytes")
  end
  local info = kind .. " of state " .. state .. ", VNF " .. buffer(0, 2):uint()
    .. ", update " .. buffer(2, 3):uint()
  pinfo.cols.info = total > 0 and info .. ", segment " .. segment .. " of " .. total or info
end

local function read_signal(buffer, pinfo, root)
  pinfo.cols.protocol = "Stackcast"
  local tree = root:add(signal, buffer())
  local length = buffer(0, 4):uint()
  if length < SIGNAL or length > MOST_SIGNAL then
    return report_fault(tree, buffer(0, 4), "BAD_MESSAGE", "invalid length of a signal: " .. length .. " bytes")
  end
  local kind = SIGNALS[buffer(4, 1):uint()]
  if not kind then return report_fault(tree, buffer(4, 1), "BAD_MESSAGE", "unknown kind of signal") end
  tree:add(of_signal.kind, buffer(4, 1), kind)
  for _, part in ipairs(SIGNAL_FIELDS) do
    local name, most, range = part[1], part[4], buffer(part[2], part[3])
    tree:add(of_signal[name], range)
    if range:uint() > most then
      report_fault(tree, range, "BAD_MESSAGE", "invalid " .. name .. " of a signal: " .. range:uint())
    end
  end
  if length > SIGNAL then tree:add(of_signal.data, buffer(4 + SIGNAL, length - SIGNAL)) end
  pinfo.cols.info = kind .. " of state " .. buffer(7, 4):uint() .. ", VNF " .. buffer(5, 2):uint()
end

function signal.dissector(buffer, pinfo, root)
  local at = 0
  while at < buffer:len() do
    local left = buffer:len() - at
    local length = left >= 4 and buffer(at, 4):uint()
    -- Invalid data is reported once, and includes all bytes received so far.
    local size = length and (length < SIGNAL or length > MOST_SIGNAL) and left or length and 4 + length
    if not size or size > left then
      pinfo.desegment_offset = at
      pinfo.desegment_len = size and size - left or DESEGMENT_ONE_MORE_SEGMENT
      return
    end
    read_signal(buffer(at, size):tvb(), pinfo, root)
    at = at + size
  end
end

local ethertypes, ports = DissectorTable.get("ethertype"), DissectorTable.get("udp.port")
ethertypes:add(NARROW, stack)
ethertypes:add(WIDE, stack)
for kind in pairs(SOURCE_ROUTES) do ethertypes:add(kind, stack) end
for kind in pairs(IDS) do ethertypes:add(kind, stack) end
ethertypes:add(HYBRID, stack)
ethertypes:add(PORT_BITMAPS, stack)
ethertypes:add(EVENT, event)
ports:add(moldudp64.prefs.ports, moldudp64)
ports:add(moldudp64.prefs.rerequest, moldudp64)
ports:add_for_decode_as(moldudp64)
ports:add_for_decode_as(tunnel)
ports:add(TUNNEL_PORT, tunnel)
ports:add(STATES_PORT, states)
for _, port in ipairs(SIGNAL_PORTS) do DissectorTable.get("tcp.port"):add(port, signal) end

local used = {moldudp64.prefs.ports, moldudp64.prefs.rerequest}
function moldudp64.prefs_changed()
  for _, old in ipairs(used) do ports:remove(old, moldudp64) end
  used = {moldudp64.prefs.ports, moldudp64.prefs.rerequest}
  for _, now in ipairs(used) do ports:add(now, moldudp64) end
end
