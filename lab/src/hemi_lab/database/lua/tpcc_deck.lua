-- The standard mix as a deck of cards (clause 5.2.4.2). Of each hundred transactions of a thread
-- exactly 45 are new orders, 43 payments, and 4 each order statuses, deliveries and stock levels,
-- in random order.

local random = require("tpcc_random")

local deck = {}
deck.__index = deck

local mix = {
   {"new_order", 45}, {"payment", 43}, {"order_status", 4}, {"delivery", 4}, {"stock_level", 4},
}

function deck.new()
   local cards = {}
   for _, entry in ipairs(mix) do
      for _ = 1, entry[2] do
         cards[#cards + 1] = entry[1]
      end
   end
   return setmetatable({cards = cards, next = #cards + 1}, deck)
end

function deck:draw()
   if self.next > #self.cards then
      local shuffled = {}
      for at, from in ipairs(random.permutation(#self.cards)) do
         shuffled[at] = self.cards[from]
      end
      self.cards, self.next = shuffled, 1
   end
   local card = self.cards[self.next]
   self.next = self.next + 1
   return card
end

return deck
