-- A TPC-C-like load for sysbench 1.0: nine tables, five transactions, the standard mix.
--
--   sysbench tpcc.lua --warehouses=10 … create    the tables, empty (one thread)
--   sysbench tpcc.lua --warehouses=10 … prepare   the rows (any number of threads)
--   sysbench tpcc.lua --warehouses=10 … run
--   sysbench tpcc.lua … cleanup                   drops the tables
--
-- The tables, the initial rows and the transaction profiles are those of the TPC-C specification
-- (revision 5.11). It is not TPC-C: there are no terminals, no keying and think times, the delivery
-- is not deferred, the home warehouse is drawn for each transaction, and nothing is audited. Its
-- figures must not be called tpmC.
--
-- Besides sysbench's own report, each thread prints its counts of each transaction at its end
-- (tpcc_report.lua).

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
package.path = here .. "?.lua;" .. package.path

if sysbench.cmdline.command == nil then
   error("a command is missing: create, prepare, run or cleanup")
end

sysbench.cmdline.options = {
   warehouses = {"Number of warehouses", 1},
   items = {"Items, and stock rows of each warehouse (the specification: 100000)", 100000},
   customers = {"Customers, and initial orders, of each district (the specification: 3000)", 3000},
}

local schema = require("tpcc_schema")
local load_rows = require("tpcc_load")
local deck = require("tpcc_deck")
local transactions = require("tpcc_transactions")
local report = require("tpcc_report")

local function scale()
   local s = {
      warehouses = sysbench.opt.warehouses,
      items = sysbench.opt.items,
      customers = sysbench.opt.customers,
   }
   -- Fewer could not hold the 15 different items of an order, or 3 of 10 orders undelivered.
   assert(s.warehouses >= 1, "--warehouses must be at least 1")
   assert(s.items >= 100, "--items must be at least 100")
   assert(s.customers >= 10, "--customers must be at least 10")
   return s
end

local function create()
   schema.create(sysbench.sql.driver():connect())
end

local function prepare()
   load_rows.load(sysbench.sql.driver():connect(), scale(), sysbench.tid, sysbench.opt.threads)
end

local function cleanup()
   schema.drop(sysbench.sql.driver():connect())
end

sysbench.cmdline.commands = {
   create = {create},
   prepare = {prepare, sysbench.cmdline.PARALLEL_COMMAND},
   cleanup = {cleanup},
}

local connection, terminal, cards, tally, pending

function thread_init()
   connection = sysbench.sql.driver():connect()
   terminal = transactions.new(connection, scale())
   cards = deck.new()
   tally = report.new()
end

function event()
   -- After a deadlock sysbench calls again, for the same transaction with the same input.
   if pending == nil then
      local name = cards:draw()
      pending = {name = name, input = terminal:input(name), began = report.now()}
   end
   local outcome = terminal:execute(pending.name, pending.input)
   tally:finished(pending.name, outcome, report.now() - pending.began)
   pending = nil
end

-- A lock wait timeout ends the statement and leaves the transaction open.
function sysbench.hooks.before_restart_event(problem)
   tally:restarted(pending.name)
   if problem.sql_errno ~= 1213 then
      connection:query("ROLLBACK")
   end
end

function thread_done()
   tally:print(sysbench.tid)
   connection:disconnect()
end
