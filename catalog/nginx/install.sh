#!/bin/sh
# Writes the server's configuration and its content into the instance's folder.
# ACCESS_LOG: what nginx logs requests to; off unless it is set.
set -eu
cd "$VITRINE_DIR"
mkdir -p html
head -c 1024 /dev/zero | tr '\0' x >html/index.html

cat >nginx.conf <<EOF
daemon off;
user root; # the instance's folder may lie where no other user can read
worker_processes 1; # every flavor is a fraction of a CPU
worker_rlimit_nofile 16384;
pid pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
	access_log ${ACCESS_LOG:-off};
	default_type text/plain;
	keepalive_requests 1000000000; # no connection is closed for its age
	keepalive_timeout 300s;
	open_file_cache max=16;
	client_body_temp_path tmp-body;
	proxy_temp_path tmp-proxy;
	fastcgi_temp_path tmp-fastcgi;
	uwsgi_temp_path tmp-uwsgi;
	scgi_temp_path tmp-scgi;
	server {
		listen $ADDRESS:8080;
		root html;
	}
}
EOF
