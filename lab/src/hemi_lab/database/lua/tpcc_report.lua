-- A thread's counts of each transaction, with latencies in logarithmic bins.
--
-- One line for each transaction at the thread's end:
--   tpcc thread=0 transaction=payment committed=12 rolled_back=0 restarts=1 bins=81:3,82:9
-- Bin b holds latencies from 2^(b/8) up to 2^((b+1)/8) microseconds, and bin 0 also shorter ones. A
-- latency counts from the first try, so restarts after a deadlock are in it.

local ffi = require("ffi")

ffi.cdef [[
   typedef struct { long seconds; long nanoseconds; } tpcc_moment;
   int clock_gettime(int clock, tpcc_moment *moment);
]]

local CLOCK_MONOTONIC = 1
local BINS_PER_OCTAVE = 8

local report = {}
report.__index = report

local names = {"new_order", "payment", "order_status", "delivery", "stock_level"}
local moment = ffi.new("tpcc_moment")

-- Microseconds of the monotonic clock.
function report.now()
   assert(ffi.C.clock_gettime(CLOCK_MONOTONIC, moment) == 0, "clock_gettime failed")
   return tonumber(moment.seconds) * 1e6 + tonumber(moment.nanoseconds) / 1e3
end

function report.new()
   local self = {}
   for _, name in ipairs(names) do
      self[name] = {committed = 0, rolled_back = 0, restarts = 0, bins = {}}
   end
   return setmetatable(self, report)
end

function report:finished(name, outcome, microseconds)
   local of = self[name]
   of[outcome] = of[outcome] + 1
   local bin = 0
   if microseconds > 1 then
      bin = math.floor(BINS_PER_OCTAVE * math.log(microseconds) / math.log(2))
   end
   of.bins[bin] = (of.bins[bin] or 0) + 1
end

function report:restarted(name)
   self[name].restarts = self[name].restarts + 1
end

function report:print(thread)
   for _, name in ipairs(names) do
      local of, filled, bins = self[name], {}, {}
      for bin in pairs(of.bins) do
         filled[#filled + 1] = bin
      end
      table.sort(filled)
      for i, bin in ipairs(filled) do
         bins[i] = bin .. ":" .. of.bins[bin]
      end
      -- In one write, since all threads print.
      io.write(string.format(
         "tpcc thread=%d transaction=%s committed=%d rolled_back=%d restarts=%d bins=%s\n",
         thread, name, of.committed, of.rolled_back, of.restarts, table.concat(bins, ",")))
   end
   io.flush()
end

return report
