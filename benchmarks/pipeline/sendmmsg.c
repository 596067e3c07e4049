/* Frames a second that sendmmsg(2) alone puts onto an interface, or into a UDP tunnel.
 *
 *     pipeline_sendmmsg INTERFACE|HOST:PORT BYTES SECONDS
 *
 * Sends one frame of BYTES bytes again and again, 1,024 a call, and prints frames and seconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 1024

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int fail(const char *what) {
  perror(what);
  return 1;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: %s INTERFACE|HOST:PORT BYTES SECONDS\n", arguments[0]);
    return 2;
  }
  size_t bytes = strtoul(arguments[2], NULL, 10);
  double seconds = strtod(arguments[3], NULL);
  char *colon = strchr(arguments[1], ':');
  int endpoint;
  if (colon) {
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
    *colon = 0;
    inet_pton(AF_INET, arguments[1], &far.sin_addr);
    endpoint = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(endpoint, (struct sockaddr *)&far, sizeof far)) return fail("connect");
  } else {
    struct sockaddr_ll near = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(arguments[1])};
    endpoint = socket(AF_PACKET, SOCK_RAW, 0);
    if (endpoint < 0) return fail("socket");
    if (bind(endpoint, (struct sockaddr *)&near, sizeof near)) return fail("bind");
  }
  int buffer = 4 << 20;
  setsockopt(endpoint, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  unsigned char *frame = calloc(1, bytes);
  memcpy(frame, "\x01\x00\x5e\x36\x0c\x01\x02\x00\x00\x00\x00\x01\x99\x99", bytes < 14 ? bytes : 14);
  static struct iovec vectors[BATCH];
  static struct mmsghdr messages[BATCH];
  for (int i = 0; i < BATCH; i++) {
    vectors[i] = (struct iovec){frame, bytes};
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  unsigned long frames = 0;
  double began = now(), ended = began;
  while (ended - began < seconds) {
    int sent = sendmmsg(endpoint, messages, BATCH, MSG_DONTWAIT);
    if (sent > 0) {
      frames += sent;
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      struct pollfd ready = {endpoint, POLLOUT, 0};
      poll(&ready, 1, 1);
    } else if (errno != ECONNREFUSED) {
      return fail("sendmmsg");
    }
    ended = now();
  }
  printf("%lu %.6f\n", frames, ended - began);
  return 0;
}
