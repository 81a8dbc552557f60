# Writes a header that defines NAME as a digest of source files: cmake -DNAME=… -DOUTPUT=… -DSOURCES=a,b -P this
string(REPLACE "," ";" SOURCES "${SOURCES}")
set(digests "")
foreach(source ${SOURCES})
    file(SHA256 ${source} digest)
    string(APPEND digests ${digest})
endforeach()
string(SHA256 digest "${digests}")
file(WRITE ${OUTPUT} "#define ${NAME} \"${digest}\"\n")
