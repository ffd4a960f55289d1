#pragma once

#include <google/protobuf/struct.pb.h>

#include <string>

#include "story.h"

// The steps, each in the file of what it is about. Each gives what is to be told of it, or throws.

// registering.cpp

// Two ranks, each from the revision before it.
std::string Register(const Story& story);
// Two ranks expect the same revision. The loser goes on from the one that its refusal names.
std::string Race(const Story& story);
// A rank with other values than its group is refused, with every field and both values.
std::string Mismatch(const Story& story);

// watching.cpp

// The watch stays with its group while the server is killed and started again.
std::string Watch(const Story& story);

// asking.cpp

// A decode server that fits, and one that does not, with every field in which it does not.
std::string Compatibility(const Story& story);
// Rooms of the whole uint64 come back as they were.
std::string Rooms(const Story& story);
// A call that waits for a revision that does not come ends when it said it would.
std::string Deadline(const Story& story);

// pictures.cpp

// Every picture of the folder gives the patches that the reference gives, byte for byte.
std::string Picture(const Story& story);
// One damaged picture fails, with reason and field; those before and after it on the same stream are served.
std::string Neighbours(const Story& story);
// A picture is cancelled in the middle of its parts; the next one on the stream is served.
std::string Cancel(const Story& story);

// main.cpp

// Writes a JSON line to stdout.
void Say(const google::protobuf::Struct& line);
