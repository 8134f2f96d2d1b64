-- What a remembered answer covers was written under the name that the caller who gave it has, too: a record with both
-- cannot be read.
UPDATE sessions SET record =
    replace(replace(replace(record,
        '"by":"commands","commands":', '"calls":"commands","commands":'),
        '"by":"files","files":', '"calls":"files","files":'),
        '"by":"tool","permission_id":', '"calls":"tool","permission_id":');
