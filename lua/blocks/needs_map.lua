if slash ~= '' and not epoch then -- only remap creates a partition beside the home
  --- use: behind
end
