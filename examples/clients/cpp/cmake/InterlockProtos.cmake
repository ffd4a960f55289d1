# The target `interlock_protos`: messages and services of Interlock, made by the build from its protos, and those of
# google.rpc that refusals carry. Needs only protobuf 3.15 and gRPC as distributions have them.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

get_filename_component(_repository "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
set(INTERLOCK_PROTOS "${_repository}/protos" CACHE PATH "Folder of Interlock's protos")
# Debian packages these two files nowhere. A program that links Google's own sets this to their folder.
set(GOOGLE_RPC_PROTOS "${_repository}/packages/google-rpc" CACHE PATH "Folder of google/rpc/{status,error_details}.proto")

set(_generated "${CMAKE_CURRENT_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${_generated}")
file(GLOB_RECURSE _protos CONFIGURE_DEPENDS RELATIVE "${INTERLOCK_PROTOS}" "${INTERLOCK_PROTOS}/*.proto")
set(_sources)
foreach(_proto IN LISTS _protos ITEMS google/rpc/status.proto google/rpc/error_details.proto)
  string(REGEX REPLACE "\\.proto$" "" _name "${_proto}")
  set(_made "${_generated}/${_name}.pb.cc" "${_generated}/${_name}.pb.h")
  set(_grpc)
  if(_name MATCHES "_service$")
    list(APPEND _made "${_generated}/${_name}.grpc.pb.cc" "${_generated}/${_name}.grpc.pb.h")
    set(_grpc "--grpc_out=${_generated}" "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>")
  endif()
  if(_name MATCHES "^google/")
    set(_file "${GOOGLE_RPC_PROTOS}/${_proto}")
  else()
    set(_file "${INTERLOCK_PROTOS}/${_proto}")
  endif()
  add_custom_command(
    OUTPUT ${_made}
    COMMAND protobuf::protoc "-I${INTERLOCK_PROTOS}" "-I${GOOGLE_RPC_PROTOS}" "--cpp_out=${_generated}" ${_grpc} "${_file}"
    DEPENDS "${_file}" protobuf::protoc
    VERBATIM)
  list(APPEND _sources ${_made})
endforeach()

add_library(interlock_protos STATIC ${_sources})
target_compile_features(interlock_protos PUBLIC cxx_std_17)
target_include_directories(interlock_protos SYSTEM PUBLIC "${_generated}")
target_link_libraries(interlock_protos PUBLIC gRPC::grpc++ protobuf::libprotobuf Threads::Threads)
