local found = redis.call('HMGET', KEYS[1], 'holder', 'token', 'cp', 'pexit', 'pholder')
if not mine(found, ARGV[1], ARGV[2]) then return {'fenced'} end
return {'ok', found[3] or '', found[4], found[5]}
